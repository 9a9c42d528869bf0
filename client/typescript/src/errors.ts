/** Errors of the client: one class for each kind of failure that a caller may handle differently. */
import type { FieldError, Run } from "./types.ts";

/** Kind of a problem that the gateway did not describe. */
export const OTHER_KIND = "http";

/** Base of all errors of the client. The message is a complete sentence for people. */
export class McpExecError extends Error {
  /** Name of the execution concerned, if one exists or may exist. */
  execution: string | undefined;
  /** Whether the gateway may have acted on the request although there is no response. */
  mayHaveArrived = false;

  constructor(message: string, options?: ErrorOptions & { execution?: string | undefined }) {
    super(message, options);
    this.name = new.target.name;
    this.execution = options?.execution;
  }
}

/** An address, a key or an option that cannot be right. */
export class ClientMisconfigured extends McpExecError {}
/** No complete response from the gateway. The message has the request's address and the reason. */
export class GatewayUnreachable extends McpExecError {}
/** A response that is not the gateway's, or that is larger than any of its responses. */
export class UnexpectedResponse extends McpExecError {}
/** An execution did not end within the client's wait. `execution` is its name. */
export class WaitExpired extends McpExecError {}

/** An execution ended without success. Only `raiseForFailure` throws it. */
export class ExecutionFailed extends McpExecError {
  readonly outcome: Run;

  constructor(outcome: Run) {
    const { name, phase, reason, error } = outcome;
    const cause = error ? `: ${[error.type, error.message].filter(Boolean).join(": ")}` : "";
    super(`${name}: ${phase} ${reason}`.trimEnd() + cause, { execution: name });
    this.outcome = outcome;
  }
}

/** What a response reports about a problem (RFC 9457). */
export interface Problem {
  /** Kind of the problem, for example `queue-full`; docs/kubectl/troubleshooting.md lists them. */
  readonly kind: string;
  /** HTTP status code. */
  readonly status: number;
  readonly detail: string;
  /** Invalid fields of the request, with what is allowed. */
  readonly errors?: readonly FieldError[];
  readonly execution?: string | undefined;
  /** Seconds until the gateway expects a retry to succeed. */
  readonly retryAfter?: number | undefined;
}

/** A response that reports a problem. A subclass exists for each kind that needs its own handling. */
export class GatewayError extends McpExecError {
  readonly kind: string;
  readonly status: number;
  readonly detail: string;
  readonly errors: readonly FieldError[];
  readonly retryAfter: number | undefined;

  constructor({ kind, status, detail, errors = [], execution, retryAfter }: Problem) {
    super(`${status} ${kind}: ${detail}`, { execution });
    this.kind = kind;
    this.status = status;
    this.detail = detail;
    this.errors = errors;
    this.retryAfter = retryAfter;
  }
}

/** A request that the gateway does not accept, for example because of a field's value; `errors` names the fields. */
export class RequestInvalid extends GatewayError {}
/** Code that the pool's static check rejects; `errors` has the findings. */
export class CodeRefused extends RequestInvalid {}
/** A missing, wrong or removed API key or token. */
export class Unauthenticated extends GatewayError {}
/** A request that the caller has no right to. */
export class Forbidden extends GatewayError {}
/** An object that does not exist, or not in the caller's namespace. */
export class NotFound extends GatewayError {}
/** A name or an Idempotency-Key that another execution has, or a deletion of an execution that has not ended. */
export class Conflict extends GatewayError {}
/** A write whose `ifMatch` or `mustBeNew` does not hold: others changed the file or the workspace. */
export class Outdated extends Conflict {}
/** A decision on an approval that is decided, expired or withdrawn. */
export class AlreadyDecided extends Conflict {}
/** An execution that was deleted during the wait. */
export class Gone extends GatewayError {}
/** A limit of the caller or the gateway that retries did not outlast; `kind` says which. */
export class TooManyRequests extends GatewayError {}
/** A pool whose queue is full. Another pool may have room. */
export class PoolQueueFull extends TooManyRequests {}
/** A gateway, or a component behind it, that does not work at the moment. */
export class Unavailable extends GatewayError {}

const BY_KIND: Readonly<Record<string, typeof GatewayError>> = {
  "code-refused": CodeRefused,
  "language-not-checked": CodeRefused,
  "key-reused": Conflict,
  decided: AlreadyDecided,
  "queue-full": PoolQueueFull,
};
const BY_STATUS: Readonly<Record<number, typeof GatewayError>> = {
  401: Unauthenticated,
  403: Forbidden,
  404: NotFound,
  409: Conflict,
  410: Gone,
  412: Outdated,
  429: TooManyRequests,
};

/** Return the class for a kind of problem, or for the status if the kind is unknown. */
export function findErrorClass(kind: string, status: number): typeof GatewayError {
  const byKind = Object.hasOwn(BY_KIND, kind) ? BY_KIND[kind] : undefined;
  return byKind ?? BY_STATUS[status] ?? (status >= 500 ? Unavailable : RequestInvalid);
}

/** Name the execution that a failed request was about, and that it goes on if only the gateway failed. */
export function addExecution(error: unknown, name: string): void {
  if (!(error instanceof McpExecError)) return;
  error.execution ??= name;
  const goesOn = [GatewayUnreachable, Unavailable, TooManyRequests].some((kind) => error instanceof kind);
  if (goesOn) error.message += `; execution ${name} goes on`;
}
