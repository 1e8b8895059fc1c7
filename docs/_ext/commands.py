"""The directive `command`: help, arguments and options of a tuneloss command, as its parser has them."""

from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from typer.main import get_command

from tuneloss.cli import app


def find_command(path: str) -> Any:
    """Return the parser of a command, such as "paper table1"."""
    command = get_command(app)
    for name in path.split():
        command = command.commands[name]
    return command


def name_parameter(parameter: Any) -> str:
    """Return how a parameter is typed: all names of an option, or an argument in capitals."""
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


def describe_parameter(parameter: Any) -> str:
    """Return what a parameter does, and its default where it has one."""
    default = parameter.default
    plain = isinstance(default, str | int | float) and not isinstance(default, bool) and default != ""
    return f"{parameter.help or ''} Default: {default}." if plain else parameter.help or ""


class Command(Directive):
    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        command = find_command(self.arguments[0])
        rows = nodes.definition_list()
        for parameter in command.params:
            term = nodes.term("", "", nodes.literal("", name_parameter(parameter)))
            text = nodes.definition("", *self.parse(describe_parameter(parameter)))
            rows += nodes.definition_list_item("", term, text)
        return [*self.parse(command.help or ""), *([rows] if command.params else [])]

    def parse(self, text: str) -> list[nodes.Node]:
        """Return the nodes of a help text, which is written in Markdown."""
        node = nodes.Element()
        self.state.nested_parse(StringList(text.splitlines(), source="help"), self.content_offset, node)
        return node.children


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("command", Command)
    return {"parallel_read_safe": True}
