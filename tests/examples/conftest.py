"""The tiny model and its server, as the tests of the server have them."""

from tests.serving.conftest import model, model_folder, server

__all__ = ["model", "model_folder", "server"]
