// The few functions of @std/assert that this project uses, thin over node:assert.
// Stands in for the JSR package of the same name; must not import anything of ours.
import nodeAssert from "node:assert";

/** Thrown by every function here when the assertion does not hold. */
export class AssertionError extends Error {
  override readonly name = "AssertionError";
}

function fail(detail: string, message: string | undefined): never {
  throw new AssertionError(message === undefined ? detail : `${detail}: ${message}`);
}

/** Asserts that `expr` is truthy. */
export function assert(expr: unknown, message = ""): asserts expr {
  if (!expr) throw new AssertionError(message);
}

/**
 * Asserts that `actual` and `expected` are deeply equal.
 *
 * Differs from the published package in that equality is that of `node:assert`'s `deepStrictEqual`:
 * a key that is present with the value undefined is not equal to an absent one.
 */
export function assertEquals<T>(actual: T, expected: T, message?: string): void {
  try {
    nodeAssert.deepStrictEqual(actual, expected);
  } catch (error) {
    fail(`Values are not equal${message ? `: ${message}` : ""}`, (error as Error).message);
  }
}

// deno-lint-ignore no-explicit-any
type ErrorConstructor<E extends Error> = abstract new (...args: any[]) => E;

function check<E extends Error>(
  error: unknown,
  ErrorClass: ErrorConstructor<E> | undefined,
  msgIncludes: string | undefined,
  message: string | undefined,
): E {
  if (!(error instanceof Error)) fail("A non-Error object was thrown", message);
  if (ErrorClass !== undefined && !(error instanceof ErrorClass)) {
    fail(
      `Expected error to be instance of "${ErrorClass.name}", but was "${error.constructor.name}" (${error.message})`,
      message,
    );
  }
  if (msgIncludes !== undefined && !error.message.includes(msgIncludes)) {
    fail(
      `Expected error message to include ${JSON.stringify(msgIncludes)}, but got ${
        JSON.stringify(error.message)
      }`,
      message,
    );
  }
  return error as E;
}

/** Asserts that `fn` throws an error of `ErrorClass` whose message includes `msgIncludes`. */
export function assertThrows<E extends Error = Error>(
  fn: () => unknown,
  ErrorClass?: ErrorConstructor<E>,
  msgIncludes?: string,
  msg?: string,
): E {
  try {
    fn();
  } catch (error) {
    return check(error, ErrorClass, msgIncludes, msg);
  }
  fail("Expected function to throw", msg);
}

/** Asserts that the promise of `fn` rejects with an error of `ErrorClass` that includes `msgIncludes`. */
export async function assertRejects<E extends Error = Error>(
  fn: () => PromiseLike<unknown>,
  ErrorClass?: ErrorConstructor<E>,
  msgIncludes?: string,
  msg?: string,
): Promise<E> {
  let promise: PromiseLike<unknown>;
  try {
    promise = fn();
  } catch {
    fail("Function throws when expected to reject", msg);
  }
  try {
    await promise;
  } catch (error) {
    return check(error, ErrorClass, msgIncludes, msg);
  }
  fail("Expected function to reject", msg);
}
