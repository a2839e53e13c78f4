"""An authority of a private network, and a certificate of it for servers on this machine."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAMES = ("site.example.com", "localhost")


class Authority:
    """`file` holds its certificate; `server_tls` is a context with a certificate that it has signed."""

    def __init__(self, folder):
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of a test")])
        ca = x509.BasicConstraints(ca=True, path_length=0)
        own = self._certificate(self._name, self._key.public_key()).add_extension(ca, critical=True)
        self.file = folder / "authority.pem"
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        self.server_tls = self._server_tls(folder)

    def _certificate(self, subject, key):
        now = datetime.now(UTC)
        begun = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        begun = begun.serial_number(x509.random_serial_number())
        return begun.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))

    def _server_tls(self, folder):
        key = ec.generate_private_key(ec.SECP256R1())
        names = [*map(x509.DNSName, NAMES), x509.IPAddress(ip_address("127.0.0.1"))]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAMES[0])])
        signed = self._certificate(subject, key.public_key()).add_extension(
            x509.SubjectAlternativeName(names), critical=False
        )
        chain, private = folder / "server.pem", folder / "server.key"
        chain.write_bytes(signed.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.PKCS8
        private.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(chain, private)
        return tls
