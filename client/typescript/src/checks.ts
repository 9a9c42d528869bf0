/** Checks of what callers give: addresses, names and bodies. */
import { ClientMisconfigured, NotFound } from "./errors.ts";

const MAX_REQUEST_BYTES = 3 * 1024 * 1024; // the largest body that a gateway can be configured to accept
/** Paths of the gateway, which people copy together with its address. */
const OWN_PATH = /\/(?:(?:api\/)?v1(?:\/.*)?|mcp|docs|healthz|readyz)\/*$/;
const THIS_MACHINE = /^(?:(?:.*\.)?localhost\.?|127\..*|0\.0\.0\.0|\[::1?\]|\[::ffff:7f.*\])$/;

/** Throw ClientMisconfigured with this message unless the condition holds. */
export function check(condition: boolean, message: string): void {
  if (!condition) throw new ClientMisconfigured(message);
}

/** Return a variable of the environment; without the right to read it, it is not set. */
export function readEnvironment(name: string): string | undefined {
  const found = globalThis as { process?: { env?: Record<string, string | undefined> } };
  try {
    return found.process?.env?.[name] || undefined;
  } catch {
    return undefined; // Deno without --allow-env
  }
}

/** Return the gateway's address, or that of $MCP_EXEC_GATEWAY. Throws ClientMisconfigured. */
export function readAddress(given: string | undefined): string {
  const address = given ?? readEnvironment("MCP_EXEC_GATEWAY") ?? "";
  check(address !== "", "the client needs the gateway's address, as an argument or in $MCP_EXEC_GATEWAY");
  const url = URL.canParse(address) ? new URL(address) : undefined;
  check(!url?.username && !url?.password, "the gateway's address has a user or a password; use an API key instead");
  const isAddress = url !== undefined && ["http:", "https:"].includes(url.protocol) && url.search + url.hash === "";
  const shown = JSON.stringify(address.slice(0, 200));
  check(isAddress, `${shown} is not the address of a gateway; an example is https://gateway.example:8080`);
  const own = OWN_PATH.exec(url?.pathname ?? "")?.[0].replace(/\/+$/, "");
  check(own === undefined, `the gateway's address is given without ${own}`);
  return address.replace(/\/+$/, "");
}

/** Warn that a key sent to this address can be read on the way, unless $MCP_EXEC_PLAIN_HTTP says that it may be. */
export function warnOfPlainHttp(address: string): void {
  const { protocol, hostname } = new URL(address);
  const isIntended = ["yes", "true", "1"].includes(readEnvironment("MCP_EXEC_PLAIN_HTTP")?.toLowerCase() ?? "");
  if (protocol !== "http:" || THIS_MACHINE.test(hostname) || isIntended) return;
  console.warn(
    `the key is sent to ${address} over plain HTTP, so it can be read and used by whoever sees the packets; ` +
      "use https://, or set MCP_EXEC_PLAIN_HTTP=yes if plain HTTP is intended",
  );
}

/** Fill the parameters into a path of the API. Throws NotFound for a name that no URL can have there. */
export function fillPath(template: string, names: Readonly<Record<string, string | number>>): string {
  return template.replace(/\{(\w+)\}/g, (_, parameter: string) => {
    const parts = String(names[parameter]).split(parameter === "path" ? "/" : /(?!)/); // the path of a file
    return parts.map(quoteSegment).join("/");
  });
}

function quoteSegment(name: string): string {
  try {
    if (!["", ".", ".."].includes(name)) return encodeURIComponent(name);
  } catch {
    // half of a surrogate pair
  }
  throw new NotFound({ kind: "not-found", status: 404, detail: `nothing has the name ${JSON.stringify(name)}` });
}

/** Encode a body. Throws TypeError if JSON would change or drop a value, or if the body is too large. */
export function encodeJson(body: unknown): Uint8Array {
  const content = new TextEncoder().encode(JSON.stringify(body, refuseOthers));
  if (content.byteLength <= MAX_REQUEST_BYTES) return content;
  throw new TypeError(`the request has ${content.byteLength} bytes; at most ${MAX_REQUEST_BYTES} are possible`);
}

function refuseOthers(this: unknown, key: string, value: unknown): unknown {
  const original = (this as Record<string, unknown>)[key];
  const isOther = (typeof value === "number" && !Number.isFinite(value)) ||
    ["function", "symbol", "bigint"].includes(typeof value) ||
    (value === undefined && Array.isArray(this)) ||
    (original instanceof Date && Number.isNaN(original.getTime())) ||
    [Map, Set, ArrayBuffer, RegExp, Promise].some((kind) => original instanceof kind) ||
    ArrayBuffer.isView(original);
  if (!isOther) return value;
  const kind = Object.prototype.toString.call(original).slice(8, -1);
  throw new TypeError(`${JSON.stringify(key)} is a value of type ${kind} that JSON does not have`);
}
