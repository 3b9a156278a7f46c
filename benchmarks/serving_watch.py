"""Looks at a server from a process of its own, since a busy client sees late: ``serving_watch.py URL``.

Ten times a second at `/health`, once a second at the memory in `/metrics`, until a line comes on stdin; then it prints
a JSON object: seconds of each look, and MB of the server. Imports nothing large, so that it is there at once.
"""

from __future__ import annotations

import http.client
import json
import re
import sys
import threading
import time


def main() -> None:
    """Look until a line comes."""
    host = sys.argv[1].removeprefix("http://")
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
    health: list[float] = []
    memory: list[int] = []
    while not over.is_set():
        began = time.perf_counter()
        assert fetch(host, "/health") == '{"status":"ok"}'
        health.append(time.perf_counter() - began)
        if len(health) % 10 == 1:
            (size,) = re.findall(r"^process_resident_memory_bytes (\S+)", fetch(host, "/metrics"), re.MULTILINE)
            memory.append(round(float(size) / 1e6))
        over.wait(0.1)
    print(json.dumps({"health": health, "memory": memory}))


def fetch(host: str, path: str) -> str:
    """Get a path on a connection of its own."""
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", path)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


if __name__ == "__main__":
    main()
