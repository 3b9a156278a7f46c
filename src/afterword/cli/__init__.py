"""ONE FILE A COMMAND: parse, call one function, print. Nothing heavy is imported before a command runs."""
