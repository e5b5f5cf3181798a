"""The dashboard: every run, and what can be done to it, in a browser; `stepwell ui`, or mounted in your application.

Pages are made on the server from the read models of `operate` and the verbs of the store; a small script keeps them
current and adds keys. Nothing here contains SQL, nothing is fetched from elsewhere, and nothing stored becomes markup.
"""

try:
    import jinja2 as _jinja2
    import starlette as _starlette
except ImportError as error:
    raise ImportError("the dashboard needs starlette and jinja2: pip install 'stepwell[ui]'") from error

from stepwell.ui.access import Principal, Token
from stepwell.ui.app import app

__all__ = ["Principal", "Token", "app"]
del _jinja2, _starlette
