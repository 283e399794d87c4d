"""TLS for the transport: a certificate of the server's own, which clients are given beforehand.

TLS hides from the network who takes part and when. No promise about vectors rests on it: the
server itself is not trusted with them.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from sparse_secagg.private_files import open_private

_VALID = datetime.timedelta(days=365)


def make_certificate(
    certificate: str | os.PathLike[str], key: str | os.PathLike[str], host: str = "127.0.0.1"
) -> None:
    """Write a self-signed certificate for a host, and its key, to new files.

    Parameters
    ----------
    certificate : path
        Where the certificate goes; clients are given this file.
    key : path
        Where its key goes, readable by its owner only. A file that is there is not overwritten.
    host : str
        Name or address by which clients reach the server.

    Raises
    ------
    FileExistsError
        If there is a key already.

    See Also
    --------
    server_context, client_context : What the two files are for.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sparse_secagg.transport import make_certificate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     make_certificate(Path(folder, "server.pem"), Path(folder, "server.key"), "localhost")
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['server.key', 'server.pem']
    """
    secret = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(secret, None)
    )
    pem = secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with open_private(Path(key), "xb") as file:
        file.write(pem)
    Path(certificate).write_bytes(made.public_bytes(Encoding.PEM))


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def server_context(
    certificate: str | os.PathLike[str], key: str | os.PathLike[str]
) -> ssl.SSLContext:
    """Return the TLS settings of a server.

    Parameters
    ----------
    certificate : path
        The server's certificate, from :func:`make_certificate` or from an authority.
    key : path
        Its key.

    Returns
    -------
    SSLContext
        TLS 1.3 and nothing older.

    Raises
    ------
    ValueError
        If the files are missing, or are no certificate and its key.

    See Also
    --------
    serve_round : Takes it.
    client_context : The other side.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sparse_secagg.transport import make_certificate, server_context
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = Path(folder, "server.pem"), Path(folder, "server.key")
    ...     make_certificate(*files)
    ...     server_context(*files).minimum_version.name
    'TLSv1_3'
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise ValueError(
            f"certificate={str(certificate)!r} and key={str(key)!r} are no certificate and its key "
            f"({error.strerror}); make_certificate makes both."
        ) from None
    return context


def client_context(certificate: str | os.PathLike[str] | None = None) -> ssl.SSLContext:
    """Return the TLS settings of a client that believes this certificate only.

    Parameters
    ----------
    certificate : path, optional
        The server's certificate. None believes the authorities of the operating system.

    Returns
    -------
    SSLContext
        TLS 1.3 and nothing older; the server's name is checked.

    Raises
    ------
    ValueError
        If the file is missing or no certificate.

    See Also
    --------
    join_round : Takes it.
    server_context : The other side.

    Examples
    --------
    >>> from sparse_secagg.transport import client_context
    >>> client_context().check_hostname
    True
    """
    try:
        context = ssl.create_default_context(
            cafile=None if certificate is None else str(certificate)
        )
    except OSError as error:
        raise ValueError(
            f"certificate={str(certificate)!r} is no certificate ({error.strerror}); give the "
            "file that the server's make_certificate wrote."
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context
