"""`python -m afterword` is the `afterword` command."""

from afterword.cli.main import main

main()
