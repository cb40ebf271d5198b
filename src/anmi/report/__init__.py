"""What a run shows: the HTML report and the tables on the console."""
