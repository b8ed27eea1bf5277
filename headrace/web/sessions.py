"""Who may see the pages, and which previews a session has shown: tokens, cookies and identities of plans. No I/O."""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: The most sessions; then the one that was used least lately ends.
MOST_SESSIONS = 1_000
#: The most sessions of one user of the identity proxy: a program without cookies ends its own sessions, not those of other users.
MOST_SESSIONS_OF_USER = 50
#: The most previews of a session that can still be carried out.
MOST_PREVIEWS = 20


@dataclass
class Session:
    """A browser that has presented the token, or a user of the identity proxy.

    Attributes:
        id: The value of its cookie.
        user: The user; empty for one who presented the token.
        form_token: What every form of the session carries: a page of another site does not know it.
    """

    id: str
    user: str
    form_token: str
    _previews: OrderedDict[str, Any] = field(default_factory=OrderedDict)

    def keep(self, number: str, preview: Any) -> None:
        """Keep a preview under a number; the oldest is forgotten."""
        self._previews[number] = preview
        while len(self._previews) > MOST_PREVIEWS:
            self._previews.popitem(last=False)

    def take(self, number: str) -> Any | None:
        """The preview of a number, once; None if there is none any more."""
        return self._previews.pop(number, None)


class Sessions:
    """All sessions of a process.

    Args:
        token: what a browser presents.
        random: gives texts that cannot be guessed.
        cookie: the name of their cookie. Browsers send cookies to all ports of a machine, so each server has its own.
    """

    def __init__(self, token: str, random: Callable[[], str], cookie: str = "headrace_session") -> None:
        self._token, self._random, self.cookie = token, random, cookie
        self._known: OrderedDict[str, Session] = OrderedDict()

    def enter(self, token: str) -> Session | None:
        """A new session for the token; None for another one. Takes equal time for all tokens of a length."""
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self._token.encode()):
            return None
        return self.open("")

    def open(self, user: str) -> Session:
        """A new session of a user that the identity proxy named."""
        if user:
            own = [one.id for one in self._known.values() if one.user == user]
            if len(own) >= MOST_SESSIONS_OF_USER:
                del self._known[own[0]]
        session = Session(self._random(), user, self._random())
        self._known[session.id] = session
        while len(self._known) > MOST_SESSIONS:
            self._known.popitem(last=False)
        return session

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie."""
        session = self._known.get(cookie)
        if session is not None:
            self._known.move_to_end(cookie)
        return session

    def number(self) -> str:
        """A number for a preview."""
        return self._random()


def is_form_token(session: Session, given: str) -> bool:
    """Whether a form is one of the session's."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), session.form_token.encode())
