// An identity provider by TLS, for tests and `make demo IDENTITY=yes`. What is signed in is lost when it ends.
// Arguments: the folder of the packages, and a file of JSON with
//   certificate     certificate and key, as PEM
//   audience        audience of access tokens
//   people          by name: password and groups
//   issuer, port    its address; without them, a free port of loopback
// The first access token of the client `forgetful` ends after three seconds, those that it refreshes do not.
// Prints the issuer. SIGHUP replaces the key that signs.
import { generateKeyPairSync, randomUUID } from "crypto";
import { readFileSync } from "fs";
import { createServer } from "https";
import { createRequire } from "module";
import { text } from "stream/consumers";
import { pathToFileURL } from "url";

const [folder, file] = process.argv.slice(2);
const main = createRequire(`${folder}/`).resolve("oidc-provider");
const { default: Provider } = await import(pathToFileURL(main));
const { createMemoryAdapter } = await import(new URL("adapters/memory_adapter.js", pathToFileURL(main)));
const { certificate, audience, people, issuer, port } = JSON.parse(readFileSync(file));
const FORGETFUL = "forgetful";
const clients = ["known", FORGETFUL].map((client_id) => ({
  client_id, // its redirect address may have any port
  redirect_uris: ["http://127.0.0.1/callback", "http://localhost/callback"],
  token_endpoint_auth_method: "none",
  grant_types: ["authorization_code", "refresh_token"],
}));
// Sessions and refresh tokens outlive a key.
const adapter = createMemoryAdapter();
const cookies = { keys: [randomUUID()] };

function createKey() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig", alg: "RS256" };
}

const escape = (value) => value.replace(/[&<>"']/g, (each) => `&#${each.charCodeAt(0)};`);

function show(ctx, { uid, prompt }, client, problem = "") {
  const fields = prompt.name === "login"
    ? `<p><label>Name <input name="login" required autofocus></label>
<p><label>Password <input name="password" type="password" required></label><p><button>Sign in</button>`
    : "<p>It gets a token with your name and your groups.<p><button autofocus>Allow</button>";
  ctx.type = "html";
  ctx.body = `<!doctype html><meta name="viewport" content="width=device-width"><title>Sign in</title>
<h1>${escape(client.clientName ?? client.clientId)}</h1><p>${problem}
<form method="post" action="/interaction/${uid}" autocomplete="off">
<input type="hidden" name="prompt" value="${prompt.name}">${fields}</form>`;
}

async function allow(provider, { prompt, params, session, grantId }) {
  const grant = (grantId && await provider.Grant.find(grantId))
    || new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope = [], missingOIDCClaims = [], missingResourceScopes = {} } = prompt.details;
  grant.addOIDCScope(missingOIDCScope.join(" "));
  grant.addOIDCClaims(missingOIDCClaims);
  for (const [resource, scopes] of Object.entries(missingResourceScopes)) grant.addResourceScope(resource, scopes.join(" "));
  return { consent: { grantId: await grant.save() } };
}

const interact = (provider) => async (ctx, next) => {
  if (!ctx.path.startsWith("/interaction/")) return next();
  const interaction = await provider.interactionDetails(ctx.req, ctx.res);
  const client = await provider.Client.find(interaction.params.client_id);
  if (ctx.method !== "POST") return show(ctx, interaction, client);
  const form = new URLSearchParams(await text(ctx.req));
  if (interaction.prompt.name !== "login") {
    return provider.interactionFinished(ctx.req, ctx.res, await allow(provider, interaction), { mergeWithLastSubmission: true });
  }
  const name = form.get("login");
  if (!Object.hasOwn(people, name) || people[name].password !== form.get("password")) {
    ctx.status = 403;
    return show(ctx, interaction, client, "Name or password is wrong.");
  }
  return provider.interactionFinished(ctx.req, ctx.res, { login: { accountId: name } });
};

function build(url) {
  const provider = new Provider(url, {
    adapter,
    clients,
    clientDefaults: { application_type: "native" },
    jwks: { keys: [createKey()] },
    cookies,
    findAccount: (_, sub) => Object.hasOwn(people, sub) ? { accountId: sub, claims: () => ({ sub }) } : undefined,
    extraTokenClaims: (_, token) => ({ groups: people[token.accountId]?.groups ?? [] }),
    scopes: ["openid", "offline_access", "run", "tools", "approve"],
    ttl: {
      AccessToken: (ctx, token, client) =>
        client.clientId === FORGETFUL && ctx.oidc.params.grant_type === "authorization_code" ? 3 : 600,
    },
    features: {
      devInteractions: { enabled: false },
      deviceFlow: { enabled: true }, // clients register its grant besides that of codes
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({
          scope: "run tools approve", audience, accessTokenFormat: "jwt", jwt: { sign: { alg: "RS256" } },
        }),
        useGrantedResource: () => true,
      },
    },
  });
  provider.use(interact(provider));
  return provider.callback();
}

const server = createServer({ cert: certificate, key: certificate });
server.listen(port ?? 0, issuer ? undefined : "127.0.0.1", () => {
  const url = issuer ?? `https://localhost:${server.address().port}`;
  let answer = build(url);
  server.on("request", (request, response) => answer(request, response));
  process.on("SIGHUP", () => { answer = build(url); });
  process.on("SIGTERM", () => process.exit(0));
  console.log(url);
});
