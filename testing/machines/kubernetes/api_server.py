"""A stand-in for the API server that shares no code with the programs: Python's HTTP over OpenSSL, with an authority, a token and one node.

The node is read by GET and changed by JSON merge patches that name its version; another version is a conflict."""
import json
import shutil
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from harness import Skip

NODE, TOKEN = "node-1", "of-the-pod"
PATH = f"/api/v1/nodes/{NODE}"
# As kubeadm makes them: RSA keys, the server's names in its certificate.
AUTHORITY = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kubernetes", "-addext", "basicConstraints=critical,CA:TRUE"]
SERVER = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kube-apiserver"]
EXTENSIONS = "basicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth\nsubjectAltName=DNS:kubernetes,IP:127.0.0.1\n"


def openssl(folder, *words):
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


class ApiServer:
    """Answers until it is ended. `account` is the folder that a container gets of its service account."""

    def __init__(self, folder):
        if not shutil.which("openssl"):
            raise Skip("openssl is not there")
        self.account, self.lock = Path(folder) / "account", threading.Lock()
        self.account.mkdir()
        (self.account / "token").write_text(TOKEN)
        keys = Path(folder) / "keys"
        keys.mkdir()
        (keys / "extensions").write_text(EXTENSIONS)
        openssl(keys, *AUTHORITY, "-keyout", "ca.key", "-out", "ca.crt")
        openssl(keys, *SERVER, "-keyout", "server.key", "-out", "server.csr")
        openssl(keys, "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "2", "-extfile", "extensions", "-out", "server.crt")
        shutil.copy(keys / "ca.crt", self.account)
        self.node = {"metadata": {"name": NODE, "resourceVersion": "1"}, "spec": {"taints": []}}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keys / "server.crt", keys / "server.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def taints(self):
        with self.lock:
            return [taint["key"] for taint in self.node["spec"]["taints"]]

    def answer(self, method, path, token, patch):
        with self.lock:
            if token != f"Bearer {TOKEN}":
                return 401, {"message": "Unauthorized"}
            if path != PATH:
                return 404, {"message": "not found"}
            metadata = self.node["metadata"]
            if method == "PATCH":
                if patch["metadata"] != {"resourceVersion": metadata["resourceVersion"]}:
                    return 409, {"message": "the object has been modified"}
                self.node["spec"].update(patch["spec"])
                metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
            return 200, self.node

    def handler(self):
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                status, answer = api.answer(self.command, self.path, self.headers["authorization"], json.loads(body or "null"))
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PATCH = answer

            def log_message(self, *_):
                pass

        return Handler

    def end(self):
        self.server.shutdown()
        self.server.server_close()
