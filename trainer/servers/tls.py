"""TLS of parameter servers: the certificate of a server, and the authority that a client trusts."""

from __future__ import annotations

import ssl

from trainer.errors import ConfigError


def server_tls(certificate: str, key: str) -> ssl.SSLContext | None:
    """What encrypts the connections of a server, from PEM files; None without a certificate. Raises :class:`ConfigError`.

    ``key``: empty if it is in the certificate's file.
    """
    if not certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("the files of a server's certificate must be PEM", where=certificate, value=str(error)[:200],
                          next_step="give --certificate and --key") from None  # fmt: skip
    return context


def client_tls(authority: str) -> ssl.SSLContext | None:
    """What verifies servers by a PEM file of their authority; None without one. Raises :class:`ConfigError`."""
    if not authority:
        return None
    try:
        return ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("the file of an authority must be PEM", where=authority, value=str(error)[:200],
                          next_step="give the certificate that has signed those of the servers") from None  # fmt: skip
