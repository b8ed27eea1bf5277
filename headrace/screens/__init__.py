"""The screens of the commands: frozen dataclasses whose fields are the JSON and whose ``render`` gives the text."""
