/**
 * Tries to leave a sandbox, by what Deno has for it. Runs inside one; `targets` comes by the execution's context.
 *
 * The result maps each attempt to what came of it: a text that begins with "open" where it worked. The attempts have the
 * names of those in probe.py, which also makes system calls that Deno has no function for.
 */

import net from "node:net";
import { execSync } from "node:child_process";

type Address = [string, number];
declare const targets: Record<string, Address> & { supervisor_port: number };

function connect([host, port]: Address): Promise<string> {
  return new Promise((done, refuse) => {
    const socket = net.connect({ host, port, timeout: 2000 });
    socket.on("connect", () => (socket.destroy(), done(`open: ${host}`)));
    socket.on("timeout", () => (socket.destroy(), refuse(new Error("timed out"))));
    socket.on("error", refuse);
  });
}

function read(path: string): string {
  const found = Deno.readFileSync(path).filter((byte) => byte !== 0);
  if (found.length === 0) throw new Error("it is empty");
  return `open: ${found.length} bytes`;
}

function write(path: string): string {
  Deno.writeTextFileSync(path, "x");
  return "open";
}

function refuseIf(found: unknown[], reason: string): string {
  if (found.length === 0) throw new Error(reason);
  return `open: ${found}`;
}

function findSecrets(): string {
  const names = Object.keys(Deno.env.toObject());
  return refuseIf(names.filter((name) => /TOKEN|_SERVICE_HOST$/.test(name.toUpperCase())), "none");
}

function readHost(): string {
  const paths = ["/var/lib/kubelet", "/run/containerd", "/dev/sda", "/dev/vda", "/dev/kmsg", "/proc/kcore"];
  const found = paths.filter((path) => {
    try {
      return Deno.statSync(path) && (Deno.openSync(path).close(), true);
    } catch {
      return false;
    }
  });
  return refuseIf(found, "nothing of the host can be read");
}

function takePort(port: number): string {
  const found = ["0.0.0.0", "127.0.0.1", "127.0.0.2", "::", "::1"].filter((hostname) => {
    try {
      Deno.listen({ hostname, port }).close();
      return true;
    } catch {
      return false;
    }
  });
  return refuseIf(found, "every way is refused");
}

async function useSupervisor(port: number): Promise<string> {
  const headers = { Authorization: "Bearer x" };
  const answer = await fetch(`http://127.0.0.1:${port}/v1/execution`, { method: "DELETE", headers });
  await answer.body?.cancel();
  if (answer.status === 401) throw new Error(String(answer.status));
  return `open: ${answer.status}`;
}

function kill(pid: number): string {
  process.kill(pid, "SIGKILL");
  throw new Error("it lives on");
}

const attempts: Record<string, () => unknown> = {
  "connect to the API server (its Service)": () => connect(targets.api_service),
  "connect to the API server (its address)": () => connect(targets.api_server),
  "connect to the node (its kubelet)": () => connect(targets.node),
  "connect to another pod": () => connect(targets.pod),
  "connect to another sandbox's supervisor": () => connect(targets.sandbox),
  "connect to the gateway": () => connect(targets.gateway),
  "connect to the cloud's metadata address": () => connect(targets.metadata),
  "look a name up in DNS": async () => `open: ${await Deno.resolveDns("kubernetes.default.svc", "A")}`,
  "read the service account's token": () => read("/var/run/secrets/kubernetes.io/serviceaccount/token"),
  "find secrets in the environment": findSecrets,
  "read files or devices of the host": readHost,
  "read /etc/shadow": () => read("/etc/shadow"),
  "write to /etc": () => write("/etc/probe"),
  "write to the runner's code": () => write("/opt/mcp-exec/probe"),
  "write to /usr/local": () => write("/usr/local/probe"),
  "write to /var/tmp": () => write("/var/tmp/probe"),
  "write to /sys": () => write("/sys/probe"),
  "become root by setuid": () => (process.setuid!(0), "open"),
  "read the supervisor's environment": () => read("/proc/1/environ"),
  "read the supervisor's memory": () => read("/proc/1/mem"),
  "write the supervisor's memory": () => (Deno.openSync("/proc/1/mem", { write: true }).close(), "open"),
  "open the supervisor's sockets": () => refuseIf([...Deno.readDirSync("/proc/1/fd")], "there is none"),
  "kill the supervisor": () => kill(1),
  "kill every process": () => kill(-1),
  "start a program": () => `open: ${execSync("id")}`,
  "load a native library": () => ((process as any).dlopen({ exports: {} }, "/lib/x86_64-linux-gnu/libc.so.6"), "open"),
  "listen on the supervisor's port": () => takePort(targets.supervisor_port),
  "use the supervisor's API": () => useSupervisor(targets.supervisor_port),
};

const outcomes: Record<string, string> = {};
for (const [name, attempt] of Object.entries(attempts)) {
  try {
    outcomes[name] = String(await attempt());
  } catch (error) {
    outcomes[name] = String(error);
  }
}
outcomes;
