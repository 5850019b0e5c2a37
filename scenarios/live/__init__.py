"""Networks with a prompt, and pages in a browser that show a run or network while it is up."""
