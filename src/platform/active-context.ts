import { AsyncLocalStorage } from "node:async_hooks";
import { type Context, type ContextManager, ROOT_CONTEXT } from "@opentelemetry/api";

/**
 * Carries the active span. Node 20 calls hooks for each promise of the process once a store is enabled: a third of what
 * a read costs. So the store is enabled only while work runs that was given a context (decision 45).
 */
export class ActiveContext implements ContextManager {
  readonly #storage = new AsyncLocalStorage<Context>();
  #running = 0;

  active(): Context {
    return this.#storage.getStore() ?? ROOT_CONTEXT;
  }

  with<A extends unknown[], F extends (...args: A) => ReturnType<F>>(
    context: Context,
    work: F,
    thisArg?: ThisParameterType<F>,
    ...args: A
  ): ReturnType<F> {
    this.#running++;
    let result: ReturnType<F> | undefined;
    try {
      result = this.#storage.run(context, () => work.apply(thisArg, args));
      return result;
    } finally {
      if (result instanceof Promise) result.then(this.#ended, this.#ended);
      else this.#ended();
    }
  }

  bind<T>(context: Context, target: T): T {
    if (typeof target !== "function") return target;
    return ((...args: unknown[]) => this.with(context, () => target(...args) as unknown)) as T;
  }

  enable(): this {
    return this;
  }

  disable(): this {
    this.#storage.disable();
    return this;
  }

  readonly #ended = (): void => {
    this.#running--;
    if (this.#running === 0) this.#storage.disable();
  };
}
