"""The colours of all figures: told apart without red and green (of Okabe and Ito), the same for a method everywhere."""

INK, GRID = "#2b2f36", "#d6d9de"  # replaced by the page's own colours in an HTML page
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
COLORS = {"TuneLoss": SERIES[0], "random search": "#7F7F7F"}
