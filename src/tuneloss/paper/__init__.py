"""The paper's experiments: one file a figure or table, the data they use and the AdaGrad trainer."""
