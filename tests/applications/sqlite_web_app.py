"""sqlite-web as its users serve it behind a proxy: ProxyFix reads what the proxy says in X-Forwarded-*."""

import sys

from sqlite_web import sqlite_web
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.serving import make_server

sqlite_web.initialize_app([sys.argv[1]])
app = sqlite_web.app
app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1, x_proto=1, x_host=1, x_prefix=1)
server = make_server("127.0.0.1", 0, app, threaded=True)
print(f"listening on 127.0.0.1:{server.server_port}")
server.serve_forever()
