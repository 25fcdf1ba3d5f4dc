"""Commands and ports of the running pod "web", with the official Python client. Usage: python_streams.py KUBECONFIG

Every check is an assertion; the last line is "ok".
"""

import sys

from kubernetes import client, config
from kubernetes.stream import portforward, stream

config.load_kube_config(sys.argv[1])
core = client.CoreV1Api()

script = "echo out; echo err >&2; read word; echo got $word; exit 3"
command = stream(
    core.connect_get_namespaced_pod_exec, "web", "default", command=["sh", "-c", script],
    stdin=True, stdout=True, stderr=True, tty=False, _preload_content=False,
)
command.write_stdin("hello\n")
command.run_forever(timeout=20)
assert command.read_stdout() == "out\ngot hello\n"
assert command.read_stderr() == "err\n"
assert command.returncode == 3

forward = portforward(core.connect_get_namespaced_pod_portforward, "web", "default", ports="8080")
socket = forward.socket(8080)
socket.setblocking(True)
socket.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
answer = b""
while part := socket.recv(4096):
    answer += part
assert answer.endswith(b"here I am\n"), answer
assert forward.error(8080) is None
print("ok")
