/** First runs of what each job does, before there is one: the first run of any code path is the slowest. */

import { Broker } from "./broker.ts";
import type { Engine } from "./engine.ts";
import { Notes } from "./notes.ts";
import { compile } from "./program.ts";
import { convertToJson } from "./values.ts";

/** Its only name is one that no code has: the names of a script stay. */
const CODE =
  'import __mcp_path from "node:path";\n{ const warm: string[] = [await __mcp_path.sep]; warm; }\n[1, { a: "b" }];\n';
const RESPONSE = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n" +
  '25\r\n{"type":"result","tool":"","value":0}\r\n0\r\n\r\n';

/** Run a small program, convert a result, and call a tool of a broker that is this process. */
export async function warmUp(engine: Engine): Promise<void> {
  await engine.run(compile(CODE, "warm.ts").text, "warm.ts");
  convertToJson([1, "a", { b: 1.5 }], 1024, new Notes());
  await callTool();
}

async function callTool(): Promise<void> {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr as Deno.NetAddr;
  const broker = new Broker({ url: `http://127.0.0.1:${port}`, token: "-", allow: [] });
  const answer = broker.call(new TextEncoder().encode("{}"), () => {});
  const connection = await listener.accept();
  await connection.read(new Uint8Array(4096));
  await connection.write(new TextEncoder().encode(RESPONSE));
  await answer;
  broker.close();
  connection.close();
  listener.close();
}
