// An identity provider on loopback, by TLS. Its people are whoever signs in; `group` of a name `NAME@GROUP` is its group.
// Arguments: the folder of the packages, a file with certificate and key, the redirect address of the known client.
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
    clients: [
      { client_id: "known", redirect_uris: [redirect], token_endpoint_auth_method: "none", application_type: "native" },
    ],
    extraTokenClaims: (_, token) => ({ groups: [(token.accountId ?? "").split("@")[1] ?? ""] }),
    features: {
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({
          scope: "run", audience: "mcp-exec-gateway", accessTokenFormat: "jwt", jwt: { sign: { alg: "RS256" } },
        }),
        useGrantedResource: () => true,
      },
    },
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
