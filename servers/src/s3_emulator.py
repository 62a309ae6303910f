"""S3 as moto does it, on the port in argv[1], with the bucket of argv[2] if that is given. What it has is in its memory.

One request is served at a time: moto looks whether an object is there, and then writes.
"""

import sys
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple
from werkzeug.test import Client

# Of no use, with thousands of requests.
WSGIRequestHandler.log_request = lambda *_: None

app, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()


def alone(environ, start_response):
    with turn:
        return list(app(environ, start_response))


port = int(sys.argv[1])
if len(sys.argv) > 2:
    made = Client(alone).put(f"/{sys.argv[2]}", base_url=f"http://127.0.0.1:{port}")
    assert made.status_code == 200, made.data
run_simple("127.0.0.1", port, alone, threaded=True)
