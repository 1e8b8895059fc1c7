"""Ridge and logistic regression with several penalties, solved exactly: tuning from far starts in wide boxes."""
