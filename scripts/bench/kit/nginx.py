"""nginx with one worker, as a server that costs little or as a proxy."""

import socket

from . import serving

CONFIG = """\
worker_processes 1;
worker_rlimit_nofile 16384;
daemon off;
pid {work}/{name}.pid;
error_log {work}/{name}.log;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_buffer_size 64k;
  client_body_temp_path {work}/body;
  proxy_temp_path {work}/proxy;
  fastcgi_temp_path {work}/fastcgi;
  uwsgi_temp_path {work}/uwsgi;
  scgi_temp_path {work}/scgi;
  default_type application/json;
  keepalive_requests 1000000000;
  {http}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    {server}
  }}
}}
"""


class Nginx(serving.Process):
    """One nginx with one worker."""

    def __init__(self, name, core, server, http=""):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = serving.WORK / f"{name}.conf"
        config.write_text(
            CONFIG.format(work=serving.WORK, name=name, port=self.port, server=server, http=http)
        )
        super().__init__(["nginx", "-e", serving.WORK / f"{name}.log", "-c", config], core)

    def __enter__(self):
        super().__enter__()
        while not serving.children(self.pid):
            if self.popen.poll() is not None:
                raise RuntimeError(f"nginx did not start; see {serving.WORK}")
        (self.worker,) = serving.children(self.pid)
        return self
