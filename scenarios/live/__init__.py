"""A network at a prompt, and the page in a browser that shows a run while it goes on."""
