"""The colours of all figures (Okabe and Ito): they can be told apart without red and green."""

INK, GRID = "#2b2f36", "#d6d9de"  # an HTML page replaces them by its own colours
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
COLORS = {"TuneLoss": SERIES[0], "random search": "#7F7F7F"}  # of methods, the same in every figure
