// An identity provider on loopback, by TLS. Its people are whoever signs in; `group` of a name `NAME@GROUP` is its group.
// The first access token of the client `forgetful` ends after a second, those that it refreshes do not.
// Arguments: the folder of the packages, a file with certificate and key, the redirect address of the known clients.
// Prints the issuer.
import { readFileSync } from "fs";
import { generateKeyPairSync } from "crypto";
import { createServer } from "https";
import { createRequire } from "module";
import { pathToFileURL } from "url";

const [folder, pem, redirect] = process.argv.slice(2);
const { default: Provider } = await import(
  pathToFileURL(createRequire(`${folder}/`).resolve("oidc-provider"))
);

function createClient(id) {
  return {
    client_id: id,
    redirect_uris: [redirect],
    token_endpoint_auth_method: "none",
    application_type: "native",
    grant_types: ["authorization_code", "refresh_token"],
  };
}

function createKey(kid) {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), kid, use: "sig", alg: "RS256" };
}

const content = readFileSync(pem);
const server = createServer({ cert: content, key: content });
server.listen(0, "127.0.0.1", () => {
  const issuer = `https://localhost:${server.address().port}`;
  const provider = new Provider(issuer, {
    jwks: { keys: [createKey("one")] },
    cookies: { keys: ["tests"] },
    clients: [createClient("known"), createClient("forgetful")],
    scopes: ["openid", "offline_access", "run", "tools", "approve"],
    ttl: {
      AccessToken: (ctx, token, client) =>
        client.clientId === "forgetful" && ctx.oidc.params.grant_type === "authorization_code" ? 1 : 600,
    },
    extraTokenClaims: (_, token) => ({ groups: [(token.accountId ?? "").split("@")[1] ?? ""] }),
    features: {
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({
          scope: "run tools approve", audience: "mcp-exec-gateway", accessTokenFormat: "jwt", jwt: { sign: { alg: "RS256" } },
        }),
        useGrantedResource: () => true,
      },
    },
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
