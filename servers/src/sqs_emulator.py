"""SQS as moto does it, on the port in argv[1]; with a folder in argv[2] it keeps what it has confirmed there.

Four things are added to moto. One request is served at a time, since it looks and then writes; who waits for messages waits outside of
that. What a FIFO queue takes for a copy it takes for one for five minutes, as the service does, whatever became of the first. And
queues are written to the folder before an answer is given, so that a server that is killed and started again has them. And it says
what it is, in the header `Server` of each answer, where moto calls itself amazon.com.
"""

import copyreg
import glob
import io
import json
import os
import pickle
import sys
import threading
import time

from moto import __version__
from moto.moto_server.werkzeug_app import create_backend_app
from moto.sqs import models
from moto.sqs.models import Queue, sqs_backends
from werkzeug.serving import WSGIRequestHandler, run_simple

ACCOUNT = "123456789012"
COPIES_FOR_MS = 300_000
LOOK_AGAIN = 0.01
# Conditions hold a lock, and nothing that is to be kept.
copyreg.pickle(threading.Condition, lambda _: (threading.Condition, ()))

# It is asked for each message at each request, and takes a while.
models.unix_time, models.unix_time_millis = time.time, lambda: time.time() * 1000
# Of no use, with thousands of requests.
WSGIRequestHandler.log_request = lambda *_: None

app = create_backend_app("sqs")
turn = threading.Lock()
folder = sys.argv[2] if len(sys.argv) > 2 else None
moto_add = Queue.add_message


def add_message(queue, message):
    if not queue.fifo_queue or not message.deduplication_id:
        return moto_add(queue, message)
    known = queue.__dict__.setdefault("known_ids", {})
    scope = message.group_id if queue.deduplication_scope == "messageGroup" else None
    key = (scope, message.deduplication_id)
    if message.sent_timestamp - known.get(key, -COPIES_FOR_MS) < COPIES_FOR_MS:
        return None
    known[key] = message.sent_timestamp
    with queue._messages_lock:
        queue._messages.append(message)
    return None


Queue.add_message = add_message


def keep():
    if folder:
        for region, backend in list(sqs_backends[ACCOUNT].items()):
            path = os.path.join(folder, f"{region}.queues")
            with open(path + ".new", "wb") as file:
                pickle.dump(backend.queues, file)
            os.replace(path + ".new", path)


def take_up():
    for path in glob.glob(os.path.join(folder, "*.queues")) if folder else []:
        with open(path, "rb") as file:
            sqs_backends[ACCOUNT][os.path.basename(path).removesuffix(".queues")].queues = pickle.load(file)


def may_give(name):
    queues = [backend.queues.get(name) for backend in list(sqs_backends[ACCOUNT].values())]
    return any(queue and queue.messages for queue in queues) or not any(queues)


def served(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    wait, name = 0, ""
    if environ.get("HTTP_X_AMZ_TARGET", "").endswith(".ReceiveMessage"):
        asked = json.loads(body)
        wait, name = asked.get("WaitTimeSeconds") or 0, asked.get("QueueUrl", "").rsplit("/", 1)[-1]
        asked["WaitTimeSeconds"] = 0
        body = json.dumps(asked).encode()
    until = time.monotonic() + wait
    while True:
        told = {}
        request = dict(environ, CONTENT_LENGTH=str(len(body)))
        request["wsgi.input"] = io.BytesIO(body)
        with turn:
            answer = b"".join(app(request, lambda status, headers, _=None: told.update(status=status, headers=headers)))
            keep()
        given = not told["status"].startswith("200") or b'"Messages"' in answer
        if given or time.monotonic() >= until:
            others = [header for header in told["headers"] if header[0].lower() != "server"]
            start_response(told["status"], [*others, ("Server", f"moto/{__version__}")])
            return [answer]
        time.sleep(LOOK_AGAIN)
        while time.monotonic() < until and not may_give(name):
            time.sleep(LOOK_AGAIN)


take_up()
run_simple("127.0.0.1", int(sys.argv[1]), served, threaded=True)
