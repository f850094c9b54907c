"""Listens to a stream as a client of httpx-sse does: it resumes from the last id, and prints each event on a line.

Arguments: the URL of the stream, the access token.
"""

import json
import sys
import time

import httpx
from httpx_sse import connect_sse

url, token = sys.argv[1:3]
last_id, retry_ms = "", 1_000

with httpx.Client(timeout=httpx.Timeout(10, read=30)) as client:
    while True:
        headers = {"Authorization": f"Bearer {token}"} | ({"Last-Event-ID": last_id} if last_id else {})
        try:
            with connect_sse(client, "GET", url, headers=headers) as source:
                source.response.raise_for_status()
                print(json.dumps({"event": "open"}), flush=True)
                for sse in source.iter_sse():
                    last_id = sse.id or last_id
                    retry_ms = sse.retry or retry_ms
                    if sse.data:
                        print(json.dumps({"event": sse.event, "data": json.loads(sse.data)}), flush=True)
        except httpx.TransportError:
            pass
        print(json.dumps({"event": "closed"}), flush=True)
        time.sleep(retry_ms / 1_000)
