"""What a tuning session found: numbers first (`*_info`), then figures, then one static HTML page."""
