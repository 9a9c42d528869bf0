/** Media types of files, as MEDIA_TYPES in mcp_exec_sandbox/protocol.py has them. */

const MEDIA_TYPES: Readonly<Record<string, string>> = {
  csv: "text/csv",
  docx: "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
  gif: "image/gif",
  gz: "application/gzip",
  html: "text/html",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  json: "application/json",
  md: "text/markdown",
  mp3: "audio/mpeg",
  mp4: "video/mp4",
  ogg: "audio/ogg",
  parquet: "application/vnd.apache.parquet",
  pdf: "application/pdf",
  png: "image/png",
  pptx: "application/vnd.openxmlformats-officedocument.presentationml.presentation",
  svg: "image/svg+xml",
  tsv: "text/tab-separated-values",
  txt: "text/plain",
  wav: "audio/wav",
  webp: "image/webp",
  xlsx: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
  xml: "application/xml",
  yaml: "application/yaml",
  zip: "application/zip",
};

const MAGIC: readonly [string, string][] = [
  ["\x89PNG\r\n\x1a\n", "image/png"],
  ["\xff\xd8\xff", "image/jpeg"],
  ["GIF8", "image/gif"],
  ["%PDF-", "application/pdf"],
  ["PK\x03\x04", "application/zip"],
];

/** Return the usual extension of a media type. */
export function findExtension(mediaType: string): string | undefined {
  const kind = mediaType.split(";")[0].trim().toLowerCase();
  return Object.keys(MEDIA_TYPES).find((extension) => MEDIA_TYPES[extension] === kind);
}

/** Return the media type of bytes by how they begin. */
export function detectType(data: Uint8Array): string {
  const head = String.fromCharCode(...data.subarray(0, 12));
  if (head.startsWith("RIFF") && head.slice(8) === "WEBP") return "image/webp";
  return MAGIC.find(([magic]) => head.startsWith(magic))?.[1] ?? "application/octet-stream";
}
