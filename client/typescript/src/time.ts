/** Time limits and delays that an AbortSignal can end. */

const MAX_TIMER_MILLISECONDS = 2 ** 31 - 1;

/**
 * Return the result of `act`. After `seconds` it is the error of `expired`, and if `signal` is aborted, its reason; the
 * signal that `act` gets is aborted in both cases.
 */
export async function within<T>(
  seconds: number,
  expired: () => Error,
  signal: AbortSignal | undefined,
  act: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal?.throwIfAborted();
  const controller = new AbortController();
  const ended = new Promise<never>((_, reject) => {
    controller.signal.addEventListener("abort", () => reject(controller.signal.reason as Error));
  });
  const stop = () => controller.abort(signal?.reason);
  const timer = setTimeout(() => controller.abort(expired()), Math.min(seconds * 1000, MAX_TIMER_MILLISECONDS));
  signal?.addEventListener("abort", stop);
  try {
    return await Promise.race([act(controller.signal), ended]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}

/** Wait for some seconds. Rejects with the signal's reason if it is aborted. */
export async function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  const over = new Error();
  const forever = () => new Promise<never>(() => undefined);
  await within(seconds, () => over, signal, forever).catch((error: unknown) => {
    if (error !== over) throw error;
  });
}

/** Return the time by a clock that never goes back, in seconds. */
export function now(): number {
  return performance.now() / 1000;
}
