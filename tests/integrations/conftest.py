"""Programs that tests start, and what they share, are not read for doctests where their libraries are missing."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("transformers") else ["hugging_face.py", "transformers_processes.py"]
