"""What a comparison of tuners found: numbers first (`*_info`), then figures, then one static HTML page."""
