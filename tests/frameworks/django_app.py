"""What ordinary Django applications read of a request: base64 of JSON in the response field `x-read`.

Each name is a dimension, then who reads it; what is not there is left out.
"""

import base64
import json
import os
import re
import unicodedata

import django
import jwt
import waitress.server
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.urls import path, re_path
from django.urls.converters import IntConverter

SECRET = os.environ["SECRET"]

settings.configure(
    ROOT_URLCONF=__name__,
    SECRET_KEY=SECRET,
    ALLOWED_HOSTS=["*"],
    USE_X_FORWARDED_HOST=True,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
    LOGGING_CONFIG=None,
)


def attempt(read):
    """What `read` gives; nothing when the framework refuses."""
    try:
        return read()
    except Exception:
        return None


def account(email):
    """As Django's own user names are normalised."""
    if isinstance(email, str):
        return unicodedata.normalize("NFKC", email).strip().casefold()
    return None


def member(body):
    value = json.loads(body)
    return value.get("email") if isinstance(value, dict) else None


def drf(header):
    """As Django REST framework's TokenAuthentication, its keyword `Bearer`."""
    parts = header.split()
    return parts[1] if len(parts) == 2 and parts[0].lower() == "bearer" else None


def claims_of(token):
    return jwt.decode(token, SECRET, algorithms=["HS256", "HS384", "HS512"], leeway=60, options={"verify_aud": False})


def subject(token):
    return text(claims_of(token).get("sub"))


def organisation(token):
    claims = claims_of(token)
    return text(claims["org.id"] if "org.id" in claims else claims["org"]["id"])


def text(value):
    """As REST framework's CharField, and what most programs do with a list of one."""
    if isinstance(value, list) and len(value) == 1:
        return text(value[0])
    return str(value).strip() if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None


def number(value):
    """As forms and serializers read an integer."""
    return str(int(value, 10) if isinstance(value, str) else int(value))


def reading(request, handler):
    body = request.body
    header = request.META.get("HTTP_AUTHORIZATION")
    bearer = {}
    if header is not None:
        bearer = {
            "split": attempt(lambda: header.split()[1]),
            "split at one blank": attempt(lambda: header.split(" ")[1]),
            "DRF": drf(header),
            "last": attempt(lambda: header.split()[-1]),
        }
    tokens = dict(bearer, whole=header)
    key = request.META.get("HTTP_X_API_KEY")
    posted = request.POST.get("email") if attempt(lambda: request.POST) else None
    return {
        "field": {
            "POST": text(posted),
            "POST, number": attempt(lambda: number(posted)),
            "json.loads": attempt(lambda: text(member(body))),
            "json.loads, number": attempt(lambda: number(member(body))),
        },
        "claim": {how: attempt(lambda: organisation(token)) for how, token in tokens.items() if token},
        "email": {
            "request.POST": account(attempt(lambda: request.POST.get("email"))),
            "json.loads": account(attempt(lambda: member(body))),
            "body or query": account(attempt(lambda: request.POST.get("email") or request.GET.get("email"))),
            "first": account(attempt(lambda: request.POST.getlist("email")[0])),
        },
        "bearer": bearer,
        "user": {how: attempt(lambda: subject(token)) for how, token in tokens.items() if token},
        "cookie": {"request.COOKIES": request.COOKIES.get("sid")},
        "query": {"request.GET": request.GET.get("key"), "first": attempt(lambda: request.GET.getlist("key")[0])},
        "header": {"raw": key, "stripped": key and key.strip()},
        "host": {"get_host": attempt(lambda: request.get_host().rsplit(":", 1)[0])},
        "address": {"X-Forwarded-For": last_address(request)},
        "path": {"urls": handler and f"{request.method} {handler}"},
    }


def last_address(request):
    """The client in front of this machine's proxies."""
    chain = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
    strangers = [part for part in chain if not part.startswith("127.")]
    return strangers[-1] if strangers else None


def matched(part):
    """The part where the pattern of `<int:…>` takes it."""
    return re.fullmatch(IntConverter.regex, part)[0]


def view(handler, methods=()):
    def respond(request, **parts):
        taken = handler if request.method in methods else None
        response = HttpResponse()
        read = reading(request, taken) | {
            "part": {
                "urls": taken and parts.get("id"),
                "<int:id>": attempt(lambda: taken and str(IntConverter().to_python(matched(parts["id"])))),
            }
        }
        text = json.dumps(read)
        response["x-read"] = base64.b64encode(text.encode()).decode()
        return response

    return respond


urlpatterns = [
    path("login", view("login", ["POST"])),
    path("login/", view("login", ["POST"])),
    path("items/<str:id>", view("item", ["DELETE"])),
    path("report", view("report", ["GET"])),
    re_path(r"^.*$", view(None)),
]

django.setup()
server = waitress.server.create_server(
    WSGIHandler(), host="127.0.0.1", port=0, threads=2, clear_untrusted_proxy_headers=False, connection_limit=200
)
print(f"listening {server.effective_port}", flush=True)
server.run()
