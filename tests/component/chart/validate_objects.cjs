// Print what is wrong with each object of a file, by the schemas that its project publishes: a list of texts and nulls.
// Arguments: the folder of the packages, the file.
const fs = require("fs");
const { pathToFileURL } = require("url");

const [folder, file] = process.argv.slice(2);
const packages = {
  "gateway.networking.k8s.io/v1": "gateway-api",
  "cert-manager.io/v1": "cert-manager",
  "gateway.envoyproxy.io/v1alpha1": "envoy-gateway",
  "cilium.io/v2": "cilium",
};

async function validate(object) {
  const path = `${folder}/@kubernetes-models/${packages[object.apiVersion]}/${object.apiVersion}/index.js`;
  const kinds = await import(pathToFileURL(path));
  try {
    new kinds[object.kind](object).validate();
    return null;
  } catch (error) {
    return `${error.message} ${JSON.stringify(error.errors ?? error.ajvErrors ?? "")}`;
  }
}

Promise.all(JSON.parse(fs.readFileSync(file)).map(validate)).then((found) => console.log(JSON.stringify(found)));
