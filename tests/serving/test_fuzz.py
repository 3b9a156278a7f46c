"""Requests made up from the app's own OpenAPI schema, fitting and not fitting: never a 500, never a hang."""

from __future__ import annotations
