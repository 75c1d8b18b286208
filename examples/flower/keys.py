"""Make keys and certificates for a deployment: `python keys.py DIRECTORY NAME...`.

    ca.crt                      Give it to every site. It proves who the server is.
    server.pem, server.key      The certificate and the key of the SuperLink. --address gives the
                                names and addresses by which the sites reach it. 127.0.0.1, ::1 and
                                localhost are always among them.
    NAME, NAME.pub              The key pair of each client. NAME stays at the site, and NAME.pub
                                goes to the server.
    roster.toml                 It tells the server which key may speak for which client.

In a real deployment each site makes its own key pair (`ssh-keygen -t ecdsa -b 384 -N "" -f NAME`)
and sends only NAME.pub. The certificate may come from the organisation's own authority instead. It
must name 127.0.0.1 as well: a part of the SuperLink, which starts the runs, connects to it there.
Without that name `flwr run` says that a run was started, and no run ever starts.
"""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAYS = 365  # For so long the certificates are valid.
LOOPBACK = ["127.0.0.1", "::1", "localhost"]  # Here the parts of a SuperLink reach each other.


def make_keys(directory: Path, clients: list[str], addresses: list[str]) -> None:
    """Write every file that the module's docstring lists."""
    directory.mkdir(parents=True, exist_ok=True)
    make_certificates(directory, addresses)
    for client in clients:
        make_node_key(directory / client)
    lines = [f'"{client}" = "{client}.pub"\n' for client in clients]
    (directory / "roster.toml").write_text("[clients]\n" + "".join(lines))


def make_node_key(path: Path) -> None:
    """Write a key pair (OpenSSH, ECDSA P-384) to `path` and `path`.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_secret(
        path,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        ),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    path.with_name(f"{path.name}.pub").write_bytes(public + b"\n")


def make_certificates(directory: Path, addresses: list[str]) -> None:
    """Write an authority's certificate, and the server's, which it signs.

    addresses: The names and addresses by which the server is reached from elsewhere.
    The authority's key is not kept, so nobody can sign another certificate with it.
    """
    addresses = list(dict.fromkeys([*addresses, *LOOPBACK]))
    authority = ec.generate_private_key(ec.SECP384R1())
    name = _name("gcfcp example authority")
    root = _certificate(name, authority.public_key(), name, authority, None)
    server = ec.generate_private_key(ec.SECP384R1())
    leaf = _certificate(_name(addresses[0]), server.public_key(), name, authority, addresses)
    pem = serialization.Encoding.PEM
    (directory / "ca.crt").write_bytes(root.public_bytes(pem))
    (directory / "server.pem").write_bytes(leaf.public_bytes(pem))
    _write_secret(
        directory / "server.key",
        server.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    addresses: list[str] | None,
) -> x509.Certificate:
    """A certificate: an authority's if `addresses` is None, else a server's for these addresses."""
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=addresses is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if addresses is None:
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
    else:
        names = x509.SubjectAlternativeName([_alternative(a) for a in addresses])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA384())


def _alternative(address: str) -> x509.GeneralName:
    """The address as a certificate names it: an IP address or a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _write_secret(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)


def main() -> None:
    parser = argparse.ArgumentParser(description="Keys and certificates for a deployment")
    parser.add_argument("directory", type=Path)
    parser.add_argument("clients", nargs="+", metavar="NAME")
    parser.add_argument(
        "--address",
        action="append",
        default=[],
        help="a name or address by which the sites reach the server; may be given several times",
    )
    given = parser.parse_args()
    make_keys(given.directory, given.clients, given.address)
    print(f"keys, certificates and roster.toml are in {given.directory}")


if __name__ == "__main__":
    main()
