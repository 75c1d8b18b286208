"""Keys and certificates for a deployment, made locally: `python keys.py DIRECTORY NAME...`.

    ca.crt                      give it to every site: it proves who the server is
    server.pem, server.key      the SuperLink's; --address adds the names and addresses it is
                                reached by (default: 127.0.0.1 and localhost)
    NAME, NAME.pub              each client's; NAME stays at the site, NAME.pub goes to the server
    roster.toml                 which key may speak for which client, for the server

In earnest each site makes its own pair (`ssh-keygen -t ecdsa -b 384 -N "" -f NAME`) and sends only
NAME.pub; and the certificate may come from the organisation's own authority instead.
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

DAYS = 365


def make_keys(directory: Path, clients: list[str], addresses: list[str]) -> None:
    """Everything that the docstring lists."""
    directory.mkdir(parents=True, exist_ok=True)
    make_certificates(directory, addresses)
    for client in clients:
        make_node_key(directory / client)
    lines = [f'"{client}" = "{client}.pub"\n' for client in clients]
    (directory / "roster.toml").write_text("[clients]\n" + "".join(lines))


def make_node_key(path: Path) -> None:
    """An OpenSSH ECDSA P-384 pair: `path` and `path`.pub."""
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
    """An authority of our own, whose key is forgotten at once, and a server's certificate by it."""
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
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _write_secret(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)


def main() -> None:
    parser = argparse.ArgumentParser(description="Keys and certificates for a deployment")
    parser.add_argument("directory", type=Path)
    parser.add_argument("clients", nargs="+", metavar="NAME")
    parser.add_argument(
        "--address",
        action="append",
        help="a name or address by which the server is reached; may be given several times",
    )
    given = parser.parse_args()
    make_keys(given.directory, given.clients, given.address or ["127.0.0.1", "localhost"])
    print(f"keys, certificates and roster.toml are in {given.directory}")


if __name__ == "__main__":
    main()
