/** Tensors that live no longer than a scope. */

/** Gives back what it holds at the end of its scope, latest first: `using made = new Temporaries()`. */
export class Temporaries implements Disposable {
  private held: Disposable[] = []

  /** Holds `item`. @returns it */
  add<T extends Disposable>(item: T): T {
    this.held.push(item)
    return item
  }

  /** Lets go of everything held: it now belongs to the caller. */
  release(): void {
    this.held = []
  }

  [Symbol.dispose](): void {
    for (const item of this.held.splice(0).reverse()) item[Symbol.dispose]()
  }
}
