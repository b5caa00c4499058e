"""What a comparison looks like: tables, plots and one self-contained HTML page."""
