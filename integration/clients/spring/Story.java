package story;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.cloud.client.discovery.DiscoveryClient;
import org.springframework.cloud.client.loadbalancer.LoadBalanced;
import org.springframework.context.ApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.web.client.RestTemplate;

/** A consumer that calls a service by its name while providers come and go. */
public class Story {
    static final Duration SOON = Duration.ofSeconds(10);
    static final Duration RECOVERY = Duration.ofSeconds(60);
    static final Duration EXPIRY = Duration.ofSeconds(40);
    // The load balancer takes turns: so many calls reach every provider that there is.
    static final int CALLS = 10;

    static final PrintStream protocol = System.out;
    static final BufferedReader answers = new BufferedReader(new InputStreamReader(System.in));
    static final String service = System.getenv("SERVICE");

    final DiscoveryClient discovery;
    final RestTemplate http;

    @SpringBootConfiguration
    @EnableAutoConfiguration
    static class Consumer {
        @Bean
        @LoadBalanced
        RestTemplate http() {
            return new RestTemplate();
        }
    }

    Story(ApplicationContext app) {
        discovery = app.getBean(DiscoveryClient.class);
        http = app.getBean(RestTemplate.class);
    }

    public static void main(String[] args) {
        System.setOut(System.err); // the framework logs to standard output
        int status = 0;
        try {
            new Story(SpringApplication.run(Consumer.class,
                    "--spring.application.name=" + service + "-consumer",
                    "--spring.cloud.nacos.discovery.server-addr=" + System.getenv("SERVERS"),
                    "--spring.cloud.nacos.discovery.register-enabled=false",
                    // Else it would call by what it knew up to 35 s ago.
                    "--spring.cloud.loadbalancer.cache.enabled=false",
                    "--spring.main.web-application-type=none")).tell();
        } catch (Throwable e) {
            e.printStackTrace();
            status = 1;
        }
        Provided.all.forEach(p -> p.process.destroyForcibly());
        System.exit(status);
    }

    void tell() throws Exception {
        Provided first = new Provided();
        step("register", () -> awaitListed(SOON, first));
        step("call", () -> awaitReached(SOON, first));
        Provided second = new Provided();
        step("push", () -> awaitReached(SOON, first, second));
        step("deregister", () -> {
            second.stop();
            awaitReached(SOON, first);
        });

        ask(System.getenv("MODE").equals("one") ? "restart" : "kill");

        // With the time that the third takes to start.
        Provided[] third = new Provided[1];
        step("recover", () -> {
            awaitReached(RECOVERY, first);
            third[0] = new Provided();
            awaitReached(RECOVERY, first, third[0]);
        });
        step("close", () -> {
            first.stop();
            third[0].stop();
            awaitListed(EXPIRY);
        });
        say("end");
    }

    /** A provider in a process of its own, which ends when this one ends. */
    static class Provided {
        static final List<Provided> all = new ArrayList<>();
        final Process process;
        final String port;

        /** Returns when the provider has registered itself. */
        Provided() throws IOException {
            process = new ProcessBuilder(System.getProperty("java.home") + "/bin/java",
                    "-Duser.home=" + System.getProperty("user.home"), "-cp", System.getProperty("java.class.path"), "story.Provider")
                    .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            all.add(this);
            port = process.inputReader().readLine();
            if (port == null) {
                throw new IOException("a provider did not start");
            }
        }

        /** Does not wait for the end: the framework goes on for 10 s after it has deregistered itself. */
        void stop() throws IOException {
            process.getOutputStream().close();
        }
    }

    void awaitListed(Duration within, Provided... want) throws Exception {
        await(within, want, () -> discovery.getInstances(service).stream().map(i -> String.valueOf(i.getPort())));
    }

    void awaitReached(Duration within, Provided... want) throws Exception {
        await(within, want, () -> {
            List<String> ports = new ArrayList<>();
            for (int i = 0; i < CALLS; i++) {
                ports.add(http.getForObject("http://" + service + "/hello", String.class));
            }
            return ports.stream().distinct();
        });
    }

    /** Looks until exactly the wanted providers are found; a call to one that has gone throws. */
    static void await(Duration within, Provided[] want, Callable<Stream<String>> found) throws Exception {
        String wanted = text(Arrays.stream(want).map(p -> p.port));
        long deadline = System.nanoTime() + within.toNanos();
        while (true) {
            Exception reason;
            try {
                String got = text(found.call());
                if (got.equals(wanted)) {
                    return;
                }
                reason = new IllegalStateException("got " + got);
            } catch (Exception e) {
                reason = e;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not within " + within.toSeconds() + " s: " + wanted, reason);
            }
            Thread.sleep(5);
        }
    }

    /** In one order. */
    static String text(Stream<String> ports) {
        return ports.collect(Collectors.toCollection(TreeSet::new)).toString();
    }

    interface Body {
        void run() throws Exception;
    }

    static void step(String name, Body body) throws Exception {
        long start = System.nanoTime();
        body.run();
        say("step " + name + " " + Duration.ofNanos(System.nanoTime() - start).toMillis());
    }

    static void ask(String what) throws Exception {
        say("ask " + what);
        if (!"done".equals(answers.readLine())) {
            throw new IllegalStateException("no answer to ask " + what);
        }
    }

    static void say(String line) {
        protocol.println(line);
        protocol.flush();
    }
}
