package story;

import jakarta.servlet.http.HttpServletRequest;
import java.io.IOException;
import java.io.PrintStream;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Registers itself, says its port and serves until its standard input ends: it outlives nobody. */
@SpringBootConfiguration
@EnableAutoConfiguration
@RestController
public class Provider {
    @GetMapping("/hello")
    String hello(HttpServletRequest request) {
        return String.valueOf(request.getLocalPort());
    }

    public static void main(String[] args) throws IOException {
        PrintStream out = System.out;
        System.setOut(System.err); // the framework logs to standard output
        ConfigurableApplicationContext app = SpringApplication.run(Provider.class,
                "--spring.application.name=" + System.getenv("SERVICE"),
                "--spring.cloud.nacos.discovery.server-addr=" + System.getenv("SERVERS"),
                "--spring.cloud.nacos.discovery.ip=127.0.0.1",
                "--server.address=127.0.0.1",
                "--server.port=0");
        out.println(app.getEnvironment().getProperty("local.server.port"));
        out.flush();
        while (System.in.read() >= 0) {
            // nothing is said to it
        }
        System.exit(SpringApplication.exit(app));
    }
}
