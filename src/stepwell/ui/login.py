"""Log in with a token, and out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from stepwell.ui.dashboard import Dashboard, theme_of, url_of
from stepwell.ui.guard import COOKIE, cookie_options
from stepwell.ui.template import template


async def form(_: Dashboard, request: Request) -> Response:
    """The form for the token."""
    return _form(request)


async def enter(_: Dashboard, request: Request) -> Response:
    """Take the token, and give a cookie in its place."""
    doorkeeper = request.app.state.doorkeeper
    token = doorkeeper.of_secret(request.state.form.get("token", "").strip())
    if token is None:
        return _form(request, "that is no token of this dashboard", status=401)
    answer = RedirectResponse(url_of(request, "/"), 303)
    answer.set_cookie(COOKIE, doorkeeper.session_of(token), **cookie_options(request))
    return answer


async def leave(_: Dashboard, request: Request) -> Response:
    """Forget the cookie."""
    answer = RedirectResponse(url_of(request, "/login"), 303)
    answer.delete_cookie(COOKIE, path=cookie_options(request)["path"])
    return answer


def _form(request: Request, told: str = "", *, status: int = 200) -> Response:
    text = template("login.html").render(
        url=lambda path, **query: url_of(request, path, **query),
        form_token=request.state.form_token,
        theme=theme_of(request),
        told=told,
    )
    return Response(text, status, media_type="text/html")
