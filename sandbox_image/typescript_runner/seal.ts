/**
 * The end of the runner's own rights, before any code runs.
 *
 * The sandbox itself, its network policy and the filter of system calls are what holds code. These rights hold it a
 * second time: Deno refuses files out of the working and the temporary folder, programs, and native libraries.
 */

/** What the runner has needed until now. The rights to read and write files are those of the command line. */
const REVOKED = ["run", "ffi", "sys", "import"] as const;
/** Parts of Deno that only serve to ask for rights, or need those that code never has. */
const REMOVED = [
  "permissions",
  "Permissions",
  "PermissionStatus",
  "Command",
  "Process",
  "ChildProcess",
  "run",
  "dlopen",
  "bundle",
];

/** Revoke rights. None of them can be granted again: nobody answers a prompt. */
export function seal(): void {
  for (const name of REVOKED) Deno.permissions.revokeSync({ name } as Deno.PermissionDescriptor);
  for (const name of REMOVED) Reflect.deleteProperty(Deno, name);
}
