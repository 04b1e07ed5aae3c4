// The address of plans.

/**
 * The part of an address that names plans, the first one the plan of the form.
 * @param {{form: Record<string, string>, config?: string | null}[]} plans
 */
export function address(plans) {
  const parameters = new URLSearchParams();
  for (const { form, config } of plans) parameters.append("p", JSON.stringify({ ...form, ...(config ? { config } : {}) }));
  return `#${parameters}`;
}
