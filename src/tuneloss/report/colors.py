"""The colours of all figures: the palette of Okabe and Ito, which colour-blind readers can tell apart."""

INK, GRID = "#2b2f36", "#d6d9de"  # of text and grid lines; an HTML page replaces them by its own colours
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
COLORS = {"TuneLoss": SERIES[0], "random search": "#7F7F7F"}  # by method, the same in every figure
