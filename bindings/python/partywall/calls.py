# SPDX-License-Identifier: MIT OR Apache-2.0
"""Calls: requests and answers over one stream, many in flight, answered in any order.

The server answers each call in a thread::

    def shout(request):
        if not request:
            raise Failure(1, "nothing to shout")
        return bytes(request).upper()

    for stream in session:
        threading.Thread(target=serve, args=(stream, shout)).start()

Any number of threads may call::

    with Client(session.open(b"shout")) as client:
        print(bytes(client.call(b"hello", timeout=5.0)))
"""

from ._errors import Failure
from ._native import CallsClient as Client
from ._native import Request
from ._native import serve_calls as serve

__all__ = ["Client", "Failure", "Request", "serve"]
