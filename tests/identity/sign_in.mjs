// An MCP client for JavaScript that signs its user in. Arguments: the folder of the packages, the SDK's package (`sdk` or
// `client`), the endpoint, the redirect address, and the id of a client that the provider knows, if it is not to register.
// It reads a JSON object a line, and answers each with one: {"call": CODE}, {"repeat": true} (the last callback),
// {"tokens": true}. Before the answer it may print {"open": ADDRESS} and {"form": TEXT}, and waits for a line with what
// the browser or the user returns.
import { randomUUID } from "crypto";
import { createRequire } from "module";
import { createInterface } from "readline";

const [folder, name, url, redirect, known] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const load = {
  sdk: () => ({
    ...require("@modelcontextprotocol/sdk/client/index.js"),
    ...require("@modelcontextprotocol/sdk/client/streamableHttp.js"),
    ...require("@modelcontextprotocol/sdk/client/auth.js"),
    form: require("@modelcontextprotocol/sdk/types.js").ElicitRequestSchema,
    options: {},
    schema: [undefined],
    readCallback: (callback) => callback.get("code"),
  }),
  client: () => ({
    ...require("@modelcontextprotocol/client"),
    form: "elicitation/create",
    schema: [],
    options: { versionNegotiation: { mode: { pin: "2026-07-28" } } },
    readCallback: (callback) => callback,
  }),
};
const sdk = load[name]();

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const print = (answer) => console.log(JSON.stringify(answer));
const read = async () => JSON.parse((await lines.next()).value ?? '{"end": true}');

let registered = known ? { client_id: known } : undefined;
const issued = [];
let tokens, verifier, opened, state, callback, transport, client, position;
const provider = {
  redirectUrl: redirect,
  clientMetadata: {
    client_name: "tests",
    redirect_uris: [redirect],
    token_endpoint_auth_method: "none",
    application_type: "native",
    grant_types: ["authorization_code", "refresh_token"],
  },
  state: () => (state = randomUUID()),
  clientInformation: () => registered,
  saveClientInformation: (given) => (registered = given),
  tokens: () => tokens,
  saveTokens: (given) => {
    tokens = given;
    issued.push(given.access_token);
  },
  saveCodeVerifier: (given) => (verifier = given),
  codeVerifier: () => verifier,
  redirectToAuthorization: (address) => (opened = String(address)),
};

async function finish() {
  await transport.finishAuth(sdk.readCallback(callback));
}

async function signIn() {
  print({ open: opened });
  opened = undefined;
  callback = new URLSearchParams((await read()).callback);
  if (callback.get("state") !== state) throw new Error("the state is another one");
  await finish();
}

// An application signs its user in and asks again, as the SDK's error says.
async function signingIn(act) {
  for (;;) {
    try {
      return await act();
    } catch (error) {
      if (opened === undefined) throw error;
      await signIn();
    }
  }
}

async function connect() {
  client = new sdk.Client({ name: "tests", version: "1" }, { ...sdk.options, capabilities: { elicitation: { form: {} } } });
  client.setRequestHandler(sdk.form, async (request) => {
    print({ form: request.params.message });
    return (await read()).answer;
  });
  transport = new sdk.StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  // in the revisions with sessions, an answer to a form is a request of its own: the stream that asked is followed again
  client.onerror = async () => {
    if (opened !== undefined && position !== undefined) {
      await signIn();
      await transport.resumeStream(position);
    }
  };
  await client.connect(transport);
}

async function call(code) {
  if (client?.transport === undefined) await signingIn(connect);
  const asked = [{ name: "run_code", arguments: { code } }, ...sdk.schema];
  const options = { onresumptiontoken: (token) => (position = token) };
  const result = await signingIn(() => client.callTool(...asked, options));
  position = undefined;
  return { text: result.content?.[0]?.text, phase: result.structuredContent?.phase, isError: result.isError ?? false };
}

const commands = {
  call,
  repeat: async () => (await finish(), { finished: true }),
  tokens: () => ({ issued, clientId: registered?.client_id }),
};

for (let command = await read(); !command.end; command = await read()) {
  const [[what, value]] = Object.entries(command);
  try {
    print(await commands[what](value));
  } catch (error) {
    print({ error: `${error.name}: ${error.message}`.slice(0, 1000) });
  }
}
process.exit(0);
